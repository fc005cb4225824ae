// An edited file of the instance: current text, the version the edits are based on, and the version on disk.
import { NewestRead } from './newestRead';
import { watchUnsaved } from './unsaved';

/** Unsaved edits of files that are not open; restored when the file is opened again. */
const stashed = new Map<string, { text: string; saved: string }>();
watchUnsaved(() => stashed.size > 0);

export class Draft {
  file = $state('');
  text = $state('');
  /** The version that the edits are based on. */
  saved = $state('');
  /** The version on disk, if it differs from `saved`. */
  diskText = $state.raw<string | null>(null);
  readonly changed = $derived(this.text !== this.saved);
  /** The file has CRLF line endings; the editor works with LF. */
  private crlf = false;
  private readonly opening = new NewestRead();

  constructor(private readonly source: (file: string) => Promise<string>) {}

  private lines(raw: string): string {
    this.crlf = raw.includes('\r\n');
    return raw.replaceAll('\r\n', '\n');
  }

  /** The text with the file's line endings. */
  asFile(text: string): string {
    return this.crlf ? text.replaceAll('\n', '\r\n') : text;
  }

  /** Opens a file and restores its unsaved edits; returns whether it did, or another file was asked for meanwhile. */
  async open(file: string): Promise<boolean> {
    const raw = await this.opening.read(() => this.source(file));
    if (raw === undefined) return false;
    this.stash();
    this.begin(file, raw);
    return true;
  }

  /** As `open`, with a text that is already loaded. */
  begin(file: string, raw: string): void {
    const disk = this.lines(raw);
    const before = stashed.get(file);
    stashed.delete(file);
    [this.file, this.text, this.saved] = [file, before?.text ?? disk, before?.saved ?? disk];
    this.diskText = this.saved === disk || this.text === disk ? null : disk;
    if (this.text === disk) this.saved = disk;
  }

  /** Rereads the file. Without unsaved edits the new version is adopted; returns whether it was. */
  async poll(): Promise<boolean> {
    const { file } = this;
    if (!file) return false;
    const raw = await this.source(file);
    if (file !== this.file) return false;
    const disk = this.lines(raw);
    if (disk === this.saved) {
      this.diskText = null;
      return false;
    }
    if (this.changed && this.text !== disk) {
      this.diskText = disk;
      return false;
    }
    this.put(disk);
    return true;
  }

  /** Adopts a version that is on disk. */
  put(text: string): void {
    [this.text, this.saved, this.diskText] = [text, text, null];
  }

  /** Keeps the edits: the next save overwrites the version on disk. */
  keepEdits(): void {
    if (this.diskText !== null) [this.saved, this.diskText] = [this.diskText, null];
  }

  /** Called when this text of the file was saved, which may not be the open one any more. */
  wrote(file: string, text: string): void {
    if (file === this.file) this.saved = text;
    else if (stashed.get(file)?.text === text) stashed.delete(file);
  }

  /** Stashes unsaved edits until the file is opened again. A file that is still loading is not opened any more. */
  stash(): void {
    this.opening.change();
    if (this.file && this.changed) stashed.set(this.file, { text: this.text, saved: this.saved });
  }
}
