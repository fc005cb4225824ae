// Chooses a media endpoint by the file extension of an address.

export function endpointOf(address: string): string {
  const path = (address.split(/[?#]/)[0] ?? '').toLowerCase();
  if (path.endsWith('.m3u8') || path.endsWith('.m3u')) return '/proxy/hls/manifest.m3u8';
  if (path.endsWith('.mpd')) return '/proxy/mpd/manifest.m3u8';
  return '/proxy/stream';
}
