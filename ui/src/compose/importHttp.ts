// Opens `.http` files: a new collection with the requests, variables and assertions of the file.
import { errorMessage } from '../lib/api';
import { app } from '../lib/app.svelte';
import { count } from '../lib/format';
import { parseHttpFile } from './http';
import { page } from './page.svelte';

/** Largest file that is read, in bytes. */
const MAX_FILE = 2 << 20;

/** Makes a collection of a file, and opens it. */
export async function importHttp(file: File): Promise<void> {
  const { library } = page;
  try {
    if (file.size > MAX_FILE) throw new Error('the file is larger than 2 MB');
    const { notes, ...collection } = parseHttpFile(await file.text());
    await library.load();
    const base = file.name.replace(/\.(http|rest)$/i, '').replace(/[^A-Za-z0-9 ._-]+/g, '-').replace(/^[^A-Za-z0-9]+|[^A-Za-z0-9]+$/g, '').slice(0, 56) || 'imported';
    let name = base;
    for (let n = 2; library.names.includes(name); n += 1) name = `${base} ${n}`;
    await library.create(name, collection);
    page.opened();
    const [first] = collection.requests;
    if (first) page.set(first);
    page.current = 0;
    const many = collection.requests.length;
    app.notify(`${count(many)} ${many === 1 ? 'request was' : 'requests were'} imported into ${name}${notes.length > 0 ? `. ${notes.join('; ')}` : ''}`, undefined, notes.length > 0);
  } catch (error) {
    app.notify(`${file.name}: ${errorMessage(error)}`, undefined, true);
  }
}
