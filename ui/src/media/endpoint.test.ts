import { describe, expect, it } from 'vitest';
import { endpointOf } from './endpoint';

describe('endpointOf', () => {
  it('recognises playlists and manifests by extension', () => {
    expect(endpointOf('https://a.test/live/index.m3u8?token=1')).toBe('/proxy/hls/manifest.m3u8');
    expect(endpointOf('https://a.test/tv.M3U')).toBe('/proxy/hls/manifest.m3u8');
    expect(endpointOf('https://a.test/film.mpd#t=1')).toBe('/proxy/mpd/manifest.m3u8');
    expect(endpointOf('https://a.test/film.mp4?as=x.m3u8')).toBe('/proxy/stream');
    expect(endpointOf('')).toBe('/proxy/stream');
  });
});
