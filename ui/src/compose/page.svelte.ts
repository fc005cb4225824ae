// What stands on the page, kept while other pages are shown.
import { loadPref, savePref } from '../lib/app.svelte';
import type { Flow } from '../lib/types';
import { watchUnsaved } from '../lib/unsaved';
import { blank, kindOf, KIND_METHODS, variablesOf, variablesText, type Variable, type Assertion, type Checked, type ComposedRequest, type RequestKind } from './http';
import { partsOfCall } from './grpc';
import { Library } from './library.svelte';
import { Schema, type Method } from './protoSchema';
import { closeStream, isOpen } from './streams';

const fieldsText = (headers: [string, string][]) => headers.map(([n, v]) => `${n}: ${v}`).join('\n');

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

  /** Schemas of gRPC that were found, and the methods of their services. */
  readonly schema = new Schema();
  methods = $state.raw<Method[]>([]);
  /** The template of a message that was written last, which another method replaces. */
  template = '';
  /** The message that is being written to an open WebSocket or gRPC call. */
  message = $state('');
  /** The message that was filled in or sent last, which is not unsaved. */
  keptMessage = '';
  /** Whether the call on the page takes more messages: until its half-close. */
  takesMessages = $state(false);
  isBinary = $state(false);

  /** The request as it was opened, saved or sent last. */
  private keptAs = '';
  /** How many requests were opened. */
  private opening = 0;
  /** The collection whose variables are shown, and those that were written without one. */
  private shown = '';
  private ownerless = '';

  constructor() {
    this.set(blank());
    watchUnsaved(() => (this.written() !== this.keptAs && (this.url !== '' || this.body !== '')) || this.isMessageUnsaved());
  }

  private written(): string {
    return JSON.stringify([this.name, this.method, this.url, this.fields, this.body, this.assertions]);
  }

  private isMessageUnsaved(): boolean {
    return this.message !== '' && this.message !== this.keptMessage;
  }

  /** Fills in a message, unless another is being written. */
  fillMessage(text: string): void {
    if (!this.isMessageUnsaved()) this.message = this.keptMessage = text;
  }

  /** The request as it is saved or sent, to be given to `kept`. */
  asNow(): { opening: number; text: string } {
    return { opening: this.opening, text: this.written() };
  }

  /** Whether no other request was opened since. */
  isOpen({ opening }: { opening: number }): boolean {
    return opening === this.opening;
  }

  /** Called when the request has been saved or recorded as it was then. */
  kept(then = this.asNow()): void {
    if (this.isOpen(then)) this.keptAs = then.text;
  }

  get kind(): RequestKind {
    return kindOf(this.method);
  }

  /** Closes the WebSocket, or cancels the gRPC call, that is open; its flow stays on the page. */
  async disconnect(): Promise<void> {
    this.takesMessages = false;
    if (this.flow && isOpen(this.flow)) await closeStream(this.flow);
  }

  /** Another kind of request to the same address. A WebSocket or call that is open would have no button to close it. */
  async setKind(kind: RequestKind): Promise<void> {
    if (kind === this.kind) return;
    await this.disconnect();
    this.message = '';
    this.method = KIND_METHODS[kind];
    // What a blank HTTP request begins with has no meaning elsewhere.
    const start = fieldsText(blank().headers);
    if (this.fields === start || this.fields === '') this.fields = kind === 'http' ? start : '';
    const given = /^(https?|wss?):/i.exec(this.url)?.[1]?.toLowerCase() ?? '';
    const isSecure = given.endsWith('s');
    const scheme = kind === 'websocket' ? (isSecure ? 'wss' : 'ws') : isSecure ? 'https' : 'http';
    if (given) this.url = scheme + this.url.slice(given.length);
    this.results = [];
    this.flow = null;
  }

  /** The method of a call to this URL; undefined without its schema. */
  methodOf(url: string): Method | undefined {
    const { path } = partsOfCall(url);
    return this.methods.find((m) => m.path === path);
  }

  /** The method of the call that is being written. */
  get grpcMethod(): Method | undefined {
    return this.methodOf(this.url);
  }

  /** Called when a schema was added. */
  foundMethods(): void {
    this.methods = [...this.schema.methods].sort((a, b) => (a.path < b.path ? -1 : 1));
  }

  /** What replaces `{{name}}`: the environment's variables count more than the collection's. */
  values(): Variable[] {
    return [...variablesOf(this.variables), ...(this.environment ? variablesOf(this.ownVariables) : [])];
  }

  /** Called when another collection is open: its variables, and the environment that was used with it last. */
  opened(): void {
    if (this.shown === '') this.ownerless = this.variables;
    this.shown = this.library.name;
    this.variables = this.shown === '' ? this.ownerless : variablesText(this.library.collection.variables);
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
    if (kindOf(request.method) !== this.kind) this.message = '';
    this.method = request.method;
    this.url = request.url;
    this.fields = fieldsText(request.headers);
    this.body = request.body;
    this.assertions = request.assertions.map((a) => ({ ...a }));
    this.results = [];
    this.opening += 1;
    this.kept();
  }
}

export const page = new ComposeState();
