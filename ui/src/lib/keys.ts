// The table of key bindings, used by the handlers, the palette and the help.

export type Action =
  | 'next' | 'previous' | 'open' | 'close' | 'first' | 'last' | 'pageDown' | 'pageUp'
  | 'filter' | 'palette' | 'pause' | 'choose' | 'star' | 'compare' | 'replay' | 'edit' | 'delete' | 'undo' | 'copy' | 'tag' | 'menu'
  | 'filterFor' | 'filterOut' | 'nextTab' | 'previousTab' | 'tab1' | 'tab2' | 'tab3' | 'tab4' | 'tab5' | 'tab6' | 'tab7' | 'tab8' | 'exchange'
  | 'help' | 'theme' | 'goTraffic' | 'goConversations' | 'goApprovals' | 'goRules' | 'goPrivacy' | 'goMedia'
  | 'goOverview' | 'goSettings' | 'goCompose' | 'goIntercept' | 'goKeys';

export interface Binding {
  action: Action;
  /** As in `KeyboardEvent.key`; `Ctrl+` also matches the command key on macOS. `g t` is one key after the other. */
  keys: string[];
  group: 'Navigation' | 'Actions' | 'View' | 'Pages';
  doc: string;
  /** Only on the traffic page. */
  traffic: boolean;
}

const bind = (group: Binding['group'], traffic: boolean, action: Action, keys: string[], doc: string): Binding => ({
  action, keys, group, doc, traffic,
});

export const BINDINGS: Binding[] = [
  bind('Navigation', true, 'next', ['j', 'ArrowDown'], 'next flow'),
  bind('Navigation', true, 'previous', ['k', 'ArrowUp'], 'previous flow'),
  bind('Navigation', true, 'pageDown', ['PageDown', ' '], 'page down'),
  bind('Navigation', true, 'pageUp', ['PageUp', 'Shift+ '], 'page up'),
  bind('Navigation', true, 'first', ['g g', 'Home'], 'newest flow'),
  bind('Navigation', true, 'last', ['G', 'End'], 'oldest flow'),
  bind('View', true, 'open', ['Enter', 'o'], 'open the selected flow'),
  bind('View', true, 'close', ['Escape'], 'close dialog, menu or flow'),
  bind('View', true, 'nextTab', ['l', 'ArrowRight'], 'next tab of the flow'),
  bind('View', true, 'previousTab', ['h', 'ArrowLeft'], 'previous tab'),
  bind('View', true, 'tab1', ['1'], 'overview'),
  bind('View', true, 'tab2', ['2'], 'request'),
  bind('View', true, 'tab3', ['3'], 'response'),
  bind('View', true, 'tab4', ['4'], 'messages'),
  bind('View', true, 'tab5', ['5'], 'rules'),
  bind('View', true, 'tab6', ['6'], 'privacy'),
  bind('View', true, 'tab7', ['7'], 'TLS and fingerprints'),
  bind('View', true, 'tab8', ['8'], 'raw'),
  bind('View', true, 'exchange', ['b'], 'request and response side by side'),
  bind('Pages', false, 'palette', ['Ctrl+k'], 'command palette: find a page, an action or a saved view'),
  bind('Actions', true, 'filter', ['/'], 'focus the filter'),
  bind('Actions', true, 'filterFor', ['f'], 'only this host'),
  bind('Actions', true, 'filterOut', ['F'], 'without this host'),
  bind('Actions', true, 'pause', ['p'], 'pause or resume updates of the list'),
  bind('Actions', true, 'choose', ['x'], 'select the flow, to compare, export or delete'),
  bind('Actions', true, 'compare', ['c'], 'compare the two selected flows'),
  bind('Actions', true, 'replay', ['r'], 'send the request again'),
  bind('Actions', true, 'edit', ['e'], 'edit the request and send it'),
  bind('Actions', true, 'copy', ['y'], 'copy as curl command'),
  bind('Actions', true, 'tag', ['t'], 'tags and comment'),
  bind('Actions', true, 'star', ['m'], 'star or unstar'),
  bind('Actions', true, 'menu', ['.', 'Shift+F10', 'ContextMenu'], 'menu of the flow: copy, filter, new rule, export …'),
  bind('Actions', true, 'delete', ['d', 'Delete'], 'delete the selected flows, or this one'),
  bind('Actions', false, 'undo', ['u', 'Ctrl+z'], 'undo what the newest notice offers to undo'),
  bind('Pages', false, 'goTraffic', ['g t'], 'Traffic'),
  bind('Pages', false, 'goIntercept', ['g i'], 'Intercept'),
  bind('Pages', false, 'goCompose', ['g c'], 'Compose'),
  bind('Pages', false, 'goConversations', ['g v'], 'Conversations'),
  bind('Pages', false, 'goApprovals', ['g a'], 'Approvals'),
  bind('Pages', false, 'goRules', ['g r'], 'Rules'),
  bind('Pages', false, 'goPrivacy', ['g p'], 'Privacy'),
  bind('Pages', false, 'goKeys', ['g k'], 'Keys & budgets'),
  bind('Pages', false, 'goMedia', ['g m'], 'Media'),
  bind('Pages', false, 'goOverview', ['g o'], 'Overview'),
  bind('Pages', false, 'goSettings', ['g s'], 'Settings'),
  bind('Pages', false, 'theme', ['T'], 'theme: light, dark or system'),
  bind('Pages', false, 'help', ['?'], 'help: keyboard shortcuts, filters, documentation'),
];

/** Keys of other pages, only for the help. */
export const OTHER_PAGE_BINDINGS: { page: 'Approvals' | 'Compose' | 'Conversations' | 'Editors and forms'; keys: string[]; doc: string }[] = [
  { page: 'Approvals', keys: ['j', 'k'], doc: 'next, previous pending request' },
  { page: 'Approvals', keys: ['a'], doc: 'allow once, or continue a held flow' },
  { page: 'Approvals', keys: ['e'], doc: 'edit the request before it is forwarded' },
  { page: 'Approvals', keys: ['A'], doc: 'allow always: choose scope and duration' },
  { page: 'Approvals', keys: ['d'], doc: 'deny once' },
  { page: 'Approvals', keys: ['D'], doc: 'deny always: choose scope and duration' },
  { page: 'Compose', keys: ['Ctrl+Enter'], doc: 'send the request, connect the WebSocket' },
  { page: 'Compose', keys: ['Enter'], doc: 'send the message of an open WebSocket or gRPC call' },
  { page: 'Compose', keys: ['Escape'], doc: 'cancel a request under way' },
  { page: 'Conversations', keys: ['j', 'k'], doc: 'next, previous conversation' },
  { page: 'Conversations', keys: ['/'], doc: 'focus the filter' },
  { page: 'Conversations', keys: ['e'], doc: 'expand or collapse everything' },
  { page: 'Conversations', keys: ['t'], doc: 'messages or trace' },
  { page: 'Conversations', keys: ['n', 'N'], doc: 'next, previous hit of the search' },
  { page: 'Conversations', keys: ['x'], doc: 'choose for comparison' },
  { page: 'Conversations', keys: ['c'], doc: 'compare the two chosen ones' },
  { page: 'Conversations', keys: ['+', '-', '0'], doc: 'zoom the trace, fit it' },
  { page: 'Conversations', keys: ['Escape'], doc: 'back to the list' },
  { page: 'Editors and forms', keys: ['Ctrl+f'], doc: 'find in the open flow or conversation' },
  { page: 'Editors and forms', keys: ['Ctrl+s'], doc: 'save and apply rules or a policy' },
  { page: 'Editors and forms', keys: ['Ctrl+Enter'], doc: 'send the edited request or held flow, save the comment' },
];

/** The part of a KeyboardEvent that bindings are matched against. */
export interface Pressed {
  key: string;
  ctrlKey: boolean;
  metaKey: boolean;
  altKey: boolean;
  shiftKey: boolean;
  /** Whether the key is held down and repeats itself. */
  repeat?: boolean;
}

/** What a held key repeats; everything else it does once. */
const REPEATED: Action[] = ['next', 'previous', 'pageDown', 'pageUp', 'first', 'last', 'nextTab', 'previousTab'];

/** Whether a dialog or a menu is open, behind which no key of the page acts. */
export const isCovered = (): boolean => document.querySelector('dialog[open], [role=menu]') !== null;

function written(event: Pressed): string {
  const held = (event.ctrlKey || event.metaKey ? 'Ctrl+' : '') + (event.altKey ? 'Alt+' : '');
  const shift = event.shiftKey && (event.key === ' ' || event.key.length > 1) ? 'Shift+' : '';
  return held + shift + event.key;
}

/** The key that another one follows: keys of pages do not collide with those of browsers, as Alt+digits do. */
const LEADER = 'g';
/** How long the second key may take, in milliseconds. */
const LEADER_MS = 1500;

/** Keys of two presses. One instance sees every key of the page first. */
export class KeySequence {
  private pressed = -Infinity;

  /** The binding whose keys this press completes; null if it is a first one, undefined if it belongs to no sequence. */
  press(event: Pressed, now: number): Binding | null | undefined {
    const isWaiting = now - this.pressed < LEADER_MS;
    this.pressed = -Infinity;
    const key = written(event);
    const binding = isWaiting ? BINDINGS.find((b) => b.keys.includes(`${LEADER} ${key}`)) : undefined;
    if (binding) return binding;
    if (key !== LEADER) return undefined;
    this.pressed = now;
    return null;
  }
}

/** The keys of a page; empty if it has none. */
export const keyOfPage = (page: string): string => BINDINGS.find((b) => pageOfAction(b.action) === page)?.keys[0] ?? '';

/** The page that an action goes to; undefined for the others. */
export const pageOfAction = (action: Action): string | undefined => /^go([A-Z]\w*)$/.exec(action)?.[1]!.toLowerCase();

/** The action bound to a key press; none for a held key that would repeat what is done once. */
export function actionOf(event: Pressed, onTraffic: boolean): Action | null {
  const wanted = written(event);
  const found = BINDINGS.find((b) => (onTraffic || !b.traffic) && b.keys.includes(wanted));
  return found && (!event.repeat || REPEATED.includes(found.action)) ? found.action : null;
}

/** Kinds of `<input>` in which nothing is typed. */
const PRESSED_INPUTS = /^(checkbox|radio|button|submit|reset|image|file|color|range)$/;
/** Kinds of `<input>` that the arrow keys change. */
const MOVED_INPUTS = /^(radio|range)$/;

/** Whether a form control needs a key itself: all keys where text is typed, only those that press or move it elsewhere. */
export function needsKey(tag: string, type: string, key: string): boolean {
  if (tag === 'TEXTAREA' || tag === 'SELECT') return true;
  if (tag !== 'INPUT') return false;
  if (!PRESSED_INPUTS.test(type)) return true;
  return key === ' ' || key === 'Enter' || (MOVED_INPUTS.test(type) && /^(Arrow|Page|Home|End)/.test(key));
}

/** Whether the event targets a text input, where letters are not commands, or a control that needs this key; looks into shadow roots. */
export function isWriting(event: Event): boolean {
  const [target] = event.composedPath();
  if (!(target instanceof HTMLElement)) return false;
  const type = target instanceof HTMLInputElement ? target.type : '';
  return target.isContentEditable || needsKey(target.tagName, type, 'key' in event ? String(event.key) : '');
}

const SHOWN: Record<string, string> = {
  ArrowDown: '↓', ArrowUp: '↑', ArrowLeft: '←', ArrowRight: '→', ' ': 'Space', Escape: 'Esc', 'Shift+ ': 'Shift+Space',
  PageDown: 'PgDn', PageUp: 'PgUp', Delete: 'Del', 'Ctrl+k': 'Ctrl+K', 'Ctrl+s': 'Ctrl+S',
};

/** Display name of a key. */
export function shown(key: string): string {
  return SHOWN[key] ?? key;
}
