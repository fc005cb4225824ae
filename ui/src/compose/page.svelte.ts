// What stands on the page, kept while other pages are shown.
import { loadPref, savePref } from '../lib/app.svelte';
import type { Flow } from '../lib/types';
import { blank, variablesOf, variablesText, type Variable, type Assertion, type Checked, type ComposedRequest } from './http';
import { Library } from './library.svelte';

class ComposeState {
  readonly library = new Library();
  name = $state('');
  method = $state('GET');
  url = $state('');
  fields = $state('');
  body = $state('');
  variables = $state('');
  /** Name of the environment in use; empty for none. */
  environment = $state('');
  /** Its variables as text. */
  ownVariables = $state('');
  assertions = $state<Assertion[]>([]);
  results = $state.raw<Checked[]>([]);
  flow = $state.raw<Flow | null>(null);
  /** Index of the request in the open collection, or -1. */
  current = $state(-1);

  constructor() {
    this.set(blank());
  }

  /** What replaces `{{name}}`: the environment's variables count more than the collection's. */
  values(): Variable[] {
    return [...variablesOf(this.variables), ...(this.environment ? variablesOf(this.ownVariables) : [])];
  }

  /** Called when another collection is open: its variables, and the environment that was used with it last. */
  opened(): void {
    this.variables = variablesText(this.library.collection.variables);
    this.current = -1;
    this.use(loadPref(`environment:${this.library.name}`) ?? '', false);
  }

  /** Switches to an environment of the open collection. */
  use(name: string, keep = true): void {
    const found = this.library.collection.environments?.find((e) => e.name === name);
    this.environment = found?.name ?? '';
    this.ownVariables = variablesText(found?.variables ?? []);
    if (keep) savePref(`environment:${this.library.name}`, this.environment || null);
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
