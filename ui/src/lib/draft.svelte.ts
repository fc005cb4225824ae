// A text file of the instance while it is edited: what is written here, what the edits began with, what stands on the disk.

/** Edits of files that somebody turned away from; they are there again when the file is. */
const stashed = new Map<string, { text: string; saved: string }>();

export class Draft {
  file = $state('');
  text = $state('');
  /** What the edits began with. */
  saved = $state('');
  /** What stands on the disk, where it is something else by now. */
  diskText = $state.raw<string | null>(null);
  readonly changed = $derived(this.text !== this.saved);
  /** Its lines end as Windows has them; the editor knows only one way. */
  private crlf = false;

  constructor(private readonly source: (file: string) => Promise<string>) {}

  private async read(file: string): Promise<string> {
    const raw = await this.source(file);
    this.crlf = raw.includes('\r\n');
    return raw.replaceAll('\r\n', '\n');
  }

  /** A text as it goes into the file. */
  asFile(text: string): string {
    return this.crlf ? text.replaceAll('\n', '\r\n') : text;
  }

  /** Shows a file, with the edits that were left in it. */
  async open(file: string): Promise<void> {
    const disk = await this.read(file);
    this.stash();
    this.begin(file, disk);
  }

  /** Begins with a text that was read already. */
  begin(file: string, disk: string): void {
    const before = stashed.get(file);
    stashed.delete(file);
    [this.file, this.text, this.saved] = [file, before?.text ?? disk, before?.saved ?? disk];
    this.diskText = this.saved === disk || this.text === disk ? null : disk;
    if (this.text === disk) this.saved = disk;
  }

  /** Looks at the disk. Where nothing is written here, what stands there is taken: says whether it was. */
  async poll(): Promise<boolean> {
    const { file } = this;
    if (!file) return false;
    const disk = await this.read(file);
    if (file !== this.file || disk === this.saved) {
      if (file === this.file) this.diskText = null;
      return false;
    }
    if (this.changed && this.text !== disk) {
      this.diskText = disk;
      return false;
    }
    this.put(disk);
    return true;
  }

  /** What is written here stands on the disk now. */
  put(text: string): void {
    [this.text, this.saved, this.diskText] = [text, text, null];
  }

  /** Keeps what is written here: the next save replaces what somebody else wrote. */
  keepEdits(): void {
    if (this.diskText !== null) [this.saved, this.diskText] = [this.diskText, null];
  }

  /** Puts edits by until the file is opened again. */
  stash(): void {
    if (this.file && this.changed) stashed.set(this.file, { text: this.text, saved: this.saved });
  }
}
