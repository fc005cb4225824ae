// Collections and history of composed requests, as the instance keeps them.
import { getAs, remove, sendAs } from '../lib/api';
import { app } from '../lib/app.svelte';
import type { Collection, ComposedRequest } from './http';

export class Library {
  names = $state.raw<string[]>([]);
  history = $state.raw<ComposedRequest[]>([]);
  /** The open collection; an empty name stands for none, whose variables are kept on this page only. */
  name = $state('');
  collection = $state.raw<Collection>({ variables: [], requests: [] });
  private revision: string | undefined;

  async load(): Promise<void> {
    const [list, history] = await Promise.all([
      getAs<{ collections: { name: string }[] }>('/collections'),
      getAs<{ requests: ComposedRequest[] }>('/compose/history'),
    ]);
    this.names = list.collections.map((c) => c.name);
    this.history = history.requests;
  }

  private path(name: string): string {
    return `/collections/${encodeURIComponent(name)}`;
  }

  private last: Promise<unknown> = Promise.resolve();

  /** What reads or writes a collection, one after the other: each needs the revision that the one before left. */
  private inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.last.then(work);
    this.last = done.catch(() => undefined);
    return done;
  }

  private show(name: string, collection: Collection, revision?: string): void {
    [this.name, this.collection, this.revision] = [name, collection, revision];
  }

  open(name: string): Promise<void> {
    return this.inTurn(async () => {
      if (name === '') return this.show('', { variables: [], requests: [] });
      const { collection, revision } = await getAs<{ revision: string; collection: Collection }>(this.path(name));
      this.show(name, collection, revision);
    });
  }

  /** Changes the open collection, and writes it. */
  change(changed: (collection: Collection) => Collection): Promise<void> {
    const { name } = this;
    return this.inTurn(async () => {
      if (this.name !== name) throw new Error(`the collection ${name} cannot be changed: it is not open`);
      const collection = changed(this.collection);
      const { revision } = await sendAs<{ revision: string }>('PUT', this.path(name), { collection, revision: this.revision });
      this.show(name, collection, revision);
    });
  }

  /** Creates a collection and opens it. */
  create(name: string, collection: Collection): Promise<void> {
    return this.inTurn(async () => {
      const { revision } = await sendAs<{ revision: string }>('PUT', this.path(name), { collection });
      this.show(name, collection, revision);
      await this.load();
    });
  }

  /** Deletes the open collection. */
  drop(): Promise<void> {
    return this.inTurn(async () => {
      await remove(this.path(this.name));
      this.show('', { variables: [], requests: [] });
      await this.load();
    });
  }

  /** Whether the history is to be deleted, unless that is undone. */
  isForgetting = $state(false);
  /** Deletes the history if that waits for its notice to go. */
  forget: () => Promise<void> = () => Promise.resolve();

  forgetLater(): void {
    this.isForgetting = true;
    const erase = async () => {
      await remove('/compose/history');
      [this.history, this.isForgetting] = [[], false];
    };
    this.forget = app.deleteLater('History deleted', erase, () => (this.isForgetting = false));
  }
}
