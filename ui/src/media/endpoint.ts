// The endpoints of media links: which one an address needs, and how this page can play what they return.

export const ENDPOINTS = [
  ['/proxy/stream', 'File or stream, unchanged'],
  ['/proxy/hls/manifest.m3u8', 'HLS playlist'],
  ['/proxy/mpd/manifest.m3u8', 'DASH manifest, played as HLS'],
  ['/proxy/mpd/manifest.mpd', 'DASH manifest, played as DASH'],
  ['/proxy/epg', 'Programme guide'],
  ['/playlist/playlist', 'Combined playlists'],
] as const;

export function nameOf(endpoint: string): string {
  return ENDPOINTS.find(([known]) => known === endpoint)?.[1] ?? endpoint;
}

/** Chooses an endpoint by the file extension of an address. */
export function endpointOf(address: string): string {
  const path = (address.split(/[?#]/)[0] ?? '').toLowerCase();
  if (path.endsWith('.m3u8') || path.endsWith('.m3u')) return '/proxy/hls/manifest.m3u8';
  if (path.endsWith('.mpd')) return '/proxy/mpd/manifest.m3u8';
  return '/proxy/stream';
}

/** The endpoint whose response browsers play: no browser plays DASH, and lists and guides have nothing to play. */
export function playableEndpoint(endpoint: string): string | null {
  if (endpoint === '/proxy/mpd/manifest.mpd') return '/proxy/mpd/manifest.m3u8';
  return endpoint === '/proxy/epg' || endpoint.startsWith('/playlist/') ? null : endpoint;
}

export const isHls = (endpoint: string): boolean => endpoint.endsWith('.m3u8');

/** Header fields from lines such as `Referer: https://…`; lines without a name are left out. */
export function headerFields(text: string): Record<string, string> {
  const out: Record<string, string> = {};
  for (const line of text.split('\n')) {
    const at = line.indexOf(':');
    if (at > 0) out[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return out;
}
