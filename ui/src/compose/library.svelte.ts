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

  async open(name: string): Promise<void> {
    if (name === '') {
      [this.name, this.collection, this.revision] = ['', { variables: [], requests: [] }, undefined];
      return;
    }
    const found = await getAs<{ revision: string; collection: Collection }>(this.path(name));
    [this.name, this.collection, this.revision] = [name, found.collection, found.revision];
  }

  /** Writes the open collection. */
  async save(collection: Collection): Promise<void> {
    const { revision } = await sendAs<{ revision: string }>('PUT', this.path(this.name), { collection, revision: this.revision });
    [this.collection, this.revision] = [collection, revision];
  }

  /** Creates a collection and opens it. */
  async create(name: string, collection: Collection): Promise<void> {
    const { revision } = await sendAs<{ revision: string }>('PUT', this.path(name), { collection });
    [this.name, this.collection, this.revision] = [name, collection, revision];
    await this.load();
  }

  async drop(): Promise<void> {
    await remove(this.path(this.name));
    await this.open('');
    await this.load();
  }

  /** Whether the history is to be deleted, unless that is undone. */
  isForgetting = $state(false);

  forgetLater(): void {
    this.isForgetting = true;
    app.deleteLater('History deleted', () => this.forget(), () => (this.isForgetting = false));
  }

  /** Deletes the history if that is what waits: also before a request, which would be deleted with it. */
  async forget(): Promise<void> {
    if (!this.isForgetting) return;
    await remove('/compose/history');
    [this.history, this.isForgetting] = [[], false];
  }
}
