// The file formats of exports.
export type ExportFormat = 'har' | 'jsonl' | 'saz' | 'fxzy' | 'mitm' | 'pcapng' | 'parquet' | 'html' | 'curl';

/** File formats of exports, with the extension of each. */
export const EXPORTS: { format: ExportFormat; label: string; extension: string }[] = [
  { format: 'jsonl', label: 'Session file (JSON lines)', extension: 'jsonl' },
  { format: 'har', label: 'HAR', extension: 'har' },
  { format: 'html', label: 'HTML page to share', extension: 'html' },
  { format: 'saz', label: 'SAZ (Fiddler)', extension: 'saz' },
  { format: 'fxzy', label: 'Fluxzy', extension: 'fxzy' },
  { format: 'mitm', label: 'mitmproxy', extension: 'mitm' },
  { format: 'pcapng', label: 'pcapng (Wireshark)', extension: 'pcapng' },
  { format: 'parquet', label: 'Parquet (table of flows)', extension: 'parquet' },
  { format: 'curl', label: 'curl script', extension: 'sh' },
];
