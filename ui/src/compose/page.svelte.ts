// What stands on the page, kept while other pages are shown.
import type { Flow } from '../lib/types';
import { blank, type Assertion, type Checked, type ComposedRequest } from './http';
import { Library } from './library.svelte';

class ComposeState {
  readonly library = new Library();
  name = $state('');
  method = $state('GET');
  url = $state('');
  fields = $state('');
  body = $state('');
  variables = $state('');
  assertions = $state<Assertion[]>([]);
  results = $state.raw<Checked[]>([]);
  flow = $state.raw<Flow | null>(null);
  /** Index of the request in the open collection, or -1. */
  current = $state(-1);

  constructor() {
    this.set(blank());
  }

  set(request: ComposedRequest): void {
    this.name = request.name;
    this.method = request.method;
    this.url = request.url;
    this.fields = request.headers.map(([n, v]) => `${n}: ${v}`).join('\n');
    this.body = request.body;
    this.assertions = request.assertions.map((a) => ({ ...a }));
    this.results = [];
  }
}

export const page = new ComposeState();
