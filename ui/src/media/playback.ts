// How a video element plays a link: by itself, or HLS through Media Source Extensions where the browser has no HLS of its own.
import type Hls from 'hls.js';
import { isHls } from './endpoint';

/** What plays a link, the first one first. */
export type PlaybackMethod = 'browser' | 'hls.js';

/** The methods for what an endpoint returns. A browser may say that it plays HLS and yet fail at a codec or container. */
export function methodsFor(endpoint: string, hasNativeHls: boolean): PlaybackMethod[] {
  if (!isHls(endpoint)) return ['browser'];
  return hasNativeHls ? ['browser', 'hls.js'] : ['hls.js'];
}

export const hasNativeHls = (video: HTMLVideoElement): boolean => video.canPlayType('application/vnd.apple.mpegurl') !== '';

/** Plays `link` in `video`; `onfail` is called once if that does not work. Returns what ends it. */
export function play(video: HTMLVideoElement, link: string, method: PlaybackMethod, onfail: () => void): () => void {
  let isEnded = false;
  const fail = () => {
    if (isEnded) return;
    end();
    onfail();
  };
  let hls: Hls | undefined;
  const end = () => {
    isEnded = true;
    video.removeEventListener('error', fail);
    hls?.destroy();
    video.removeAttribute('src');
    video.load();
  };
  video.addEventListener('error', fail);
  if (method === 'browser') {
    video.src = link;
  } else {
    void import('hls.js').then(({ default: HlsPlayer, Events }) => {
      if (isEnded) return;
      if (!HlsPlayer.isSupported()) return fail();
      // A worker would need a weaker content security policy.
      hls = new HlsPlayer({ enableWorker: false });
      hls.on(Events.ERROR, (_, data) => { if (data.fatal) fail(); });
      hls.loadSource(link);
      hls.attachMedia(video);
    }, fail);
  }
  return end;
}

/** Why a link cannot be played: what the gateway says about it, if that is an error. */
export async function reasonOf(link: string): Promise<string> {
  const response = await fetch(link, { headers: { range: 'bytes=0-0' } }).catch(() => null);
  if (!response) return 'The gateway cannot be reached from this browser.';
  if (response.ok) {
    await response.body?.cancel();
    return '';
  }
  const text = (await response.text()).trim().slice(0, 400);
  return `The gateway answered ${response.status}${text ? `: ${text}` : '.'}`;
}
