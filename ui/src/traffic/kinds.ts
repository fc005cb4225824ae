// What kind of thing a flow is, by its types: for an icon and a colour.
import type { Summary } from '../lib/types';

export type FlowKindIcon =
  | 'websocket' | 'stream' | 'grpc' | 'tunnel' | 'json' | 'html' | 'image' | 'script' | 'style' | 'font' | 'video' | 'form' | 'text'
  | 'binary' | 'empty';

/** Icons on a grid of 16. */
export const KIND_ICONS: Record<FlowKindIcon, string> = {
  websocket: 'M3 6h9M9.5 3.5 12 6 9.5 8.5M13 10H4M6.5 7.5 4 10l2.5 2.5',
  stream: 'M3 4h6M3 8h10M3 12h7',
  grpc: 'M8 2.5 13 5.3v5.4L8 13.5 3 10.7V5.3zM8 8v5.5M8 8l5-2.7M8 8 3 5.3',
  tunnel: 'M4 7.5h8V13H4zM5.5 7.5V5.3a2.5 2.5 0 0 1 5 0v2.2',
  json: 'M6 3C4.6 3 4.8 4.3 4.8 5.4S4.4 8 3 8c1.4 0 1.8 1.5 1.8 2.6S4.6 13 6 13M10 3c1.4 0 1.2 1.3 1.2 2.4S11.6 8 13 8c-1.4 0-1.8 1.5-1.8 2.6s.2 2.4-1.2 2.4',
  html: 'M5.5 4 2 8l3.5 4M10.5 4 14 8l-3.5 4',
  image: 'M2.5 3.5h11v9h-11zM2.5 11l3.3-3.3 2.7 2.6 1.7-1.6 3.3 3M10.6 6.2h.1',
  script: 'M4 3.5 12.5 8 4 12.5z',
  style: 'M8 2.5s4 4.2 4 7a4 4 0 0 1-8 0c0-2.8 4-7 4-7z',
  font: 'M3.5 13 8 3l4.5 10M5.2 9.5h5.6',
  video: 'M2.5 4h11v8h-11zM6.8 6.2 9.8 8l-3 1.8z',
  form: 'M3 3.5h10v9H3zM5.5 6.5h5M5.5 9.5h3',
  text: 'M3 4h10M3 7h10M3 10h10M3 13h6',
  binary: 'M4 3.5h2v3.5H4zM10.5 3.5v3.5M5 9.5V13M9.5 9.5h2V13h-2z',
  empty: 'M8 8h.1',
};

export function kindOf(flow: Pick<Summary, 'kind' | 'response_type' | 'request_type' | 'path'>): FlowKindIcon {
  if (flow.kind === 'tunnel') return 'tunnel';
  if (flow.kind === 'websocket') return 'websocket';
  if (flow.request_type?.startsWith('application/grpc')) return 'grpc';
  const type = flow.response_type ?? '';
  if (type === '') return 'empty';
  if (/event-stream|ndjson|jsonl/.test(type)) return 'stream';
  if (/json$/.test(type)) return 'json';
  if (/html|xml$/.test(type) && !/^image\/|dash\+/.test(type)) return 'html';
  if (type.startsWith('image/')) return 'image';
  if (/javascript|ecmascript|wasm/.test(type)) return 'script';
  if (type === 'text/css') return 'style';
  if (/font/.test(type)) return 'font';
  if (/^(video|audio)\/|mpegurl|dash\+/.test(type)) return 'video';
  if (/form/.test(type)) return 'form';
  return type.startsWith('text/') ? 'text' : 'binary';
}

/** The CSS class of a method's colour. */
export function methodClass(method: string | undefined): string {
  switch (method) {
    case 'GET': return 'm-get';
    case 'POST': return 'm-post';
    case 'PUT': case 'PATCH': return 'm-put';
    case 'DELETE': return 'm-delete';
    default: return 'm-other';
  }
}
