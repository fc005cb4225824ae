// The columns of the table: which exist, which fit, and the user's choice of them.
import { isTouch } from '../lib/touch';

export type ColumnId =
  | 'select' | 'method' | 'status' | 'host' | 'path' | 'type' | 'size' | 'sent' | 'dur' | 'time' | 'client' | 'user' | 'process'
  | 'version' | 'comment' | 'badges' | 'fall';

export interface Column {
  id: ColumnId;
  label: string;
  /** Smallest width in pixels. */
  min: number;
  /** Share of the free width; columns without one have their smallest width. */
  grow?: number;
  /** Columns with a lower number are left out first where there is no room. */
  priority: number;
  isFigure?: boolean;
  isSortable?: boolean;
  /** Not shown unless chosen. */
  isOptional?: boolean;
}

export const COLUMNS: Column[] = [
  { id: 'select', label: 'Select', min: isTouch ? 40 : 20, priority: 40 },
  { id: 'method', label: 'Method', min: 58, priority: 90, isSortable: true },
  { id: 'status', label: 'Status', min: 50, priority: 95, isSortable: true },
  { id: 'host', label: 'Host', min: 120, grow: 1.1, priority: 80, isSortable: true },
  { id: 'path', label: 'Path', min: 130, grow: 2.2, priority: 100, isSortable: true },
  { id: 'type', label: 'Type', min: 84, priority: 50, isSortable: true },
  { id: 'size', label: 'Size', min: 66, priority: 60, isFigure: true, isSortable: true },
  { id: 'sent', label: 'Sent', min: 66, priority: 25, isFigure: true, isSortable: true, isOptional: true },
  { id: 'dur', label: 'Duration', min: 72, priority: 70, isFigure: true, isSortable: true },
  { id: 'time', label: 'Time', min: 92, priority: 45, isFigure: true, isSortable: true },
  { id: 'client', label: 'Client', min: 110, priority: 20, isSortable: true, isOptional: true },
  { id: 'user', label: 'User', min: 80, priority: 22, isSortable: true, isOptional: true },
  { id: 'process', label: 'Program', min: 90, priority: 24, isSortable: true, isOptional: true },
  { id: 'version', label: 'Protocol', min: 72, priority: 15, isSortable: true, isOptional: true },
  { id: 'comment', label: 'Comment', min: 110, grow: 0.8, priority: 18, isSortable: true, isOptional: true },
  { id: 'badges', label: 'Badges', min: 96, grow: 0.5, priority: 55 },
  { id: 'fall', label: 'Waterfall', min: 90, grow: 0.8, priority: 30 },
];

const BY_ID = new Map(COLUMNS.map((c) => [c.id, c]));
/** Gap between two columns, and the padding of a row, in pixels. */
export const GAP = 10;
export const MAX_WIDTH = 1200;

/** The user's choice of a column; their order is that of the list. */
export interface Choice {
  id: ColumnId;
  shown: boolean;
  /** Chosen width in pixels. */
  width?: number;
}

export function columnOf(id: ColumnId): Column {
  return BY_ID.get(id)!;
}

export function defaultChoices(): Choice[] {
  return COLUMNS.map(({ id, isOptional }) => ({ id, shown: !isOptional }));
}

/** A stored choice; columns that it does not know yet follow in their usual place. */
export function readChoices(stored: string | null): Choice[] {
  let found: unknown;
  try {
    found = JSON.parse(stored ?? 'null');
  } catch {
    found = null;
  }
  if (!Array.isArray(found)) return defaultChoices();
  const known = found.filter((c): c is Choice => BY_ID.has((c as Choice | null)?.id as ColumnId) && typeof (c as Choice).shown === 'boolean');
  const choices = known
    .filter((c, i) => known.findIndex((o) => o.id === c.id) === i)
    .map(({ id, shown, width }) => ({ id, shown, ...(typeof width === 'number' ? { width: clampWidth(id, width) } : {}) }));
  for (const [i, column] of COLUMNS.entries()) {
    if (choices.some((c) => c.id === column.id)) continue;
    const before = choices.findIndex((c) => c.id === COLUMNS[i - 1]?.id);
    choices.splice(before + 1, 0, { id: column.id, shown: !column.isOptional });
  }
  return choices.some((c) => c.shown && c.id !== 'select') ? choices : defaultChoices();
}

export function clampWidth(id: ColumnId, width: number): number {
  return Math.round(Math.max(Math.min(columnOf(id).min, 40), Math.min(width, MAX_WIDTH)));
}

/** The columns that fit into a width, in order; the least important ones are left out. */
export function fitting(choices: Choice[], width: number): Choice[] {
  let shown = choices.filter((c) => c.shown);
  const needed = (list: Choice[]) => list.reduce((n, c) => n + (c.width ?? columnOf(c.id).min) + GAP, GAP);
  while (shown.length > 2 && needed(shown) > width) {
    const least = shown.reduce((a, b) => (columnOf(b.id).priority < columnOf(a.id).priority ? b : a));
    shown = shown.filter((c) => c !== least);
  }
  return shown;
}

/** The grid's columns in CSS. */
export function template(shown: Choice[]): string {
  const isElastic = shown.some((c) => c.width === undefined && columnOf(c.id).grow);
  return shown
    .map((c, i) => {
      const { min, grow } = columnOf(c.id);
      // Something must take the free width.
      if (c.width !== undefined) return isElastic || i < shown.length - 1 ? `${c.width}px` : `minmax(${c.width}px, 1fr)`;
      return grow ? `minmax(${min}px, ${grow}fr)` : `${min}px`;
    })
    .join(' ');
}

/** The width that a column has in a table of this width, in pixels. */
export function widthIn(shown: Choice[], id: ColumnId, width: number): number {
  let free = width - 2 * GAP - (shown.length - 1) * GAP;
  let elastic: { id: ColumnId; min: number; grow: number }[] = [];
  for (const c of shown) {
    const { min, grow } = columnOf(c.id);
    if (c.width === undefined && grow) elastic.push({ id: c.id, min, grow });
    else {
      free -= c.width ?? min;
      if (c.id === id) return c.width ?? min;
    }
  }
  // A column whose share is less than its smallest width has that; the others share the rest.
  for (;;) {
    const share = free / elastic.reduce((sum, c) => sum + c.grow, 0);
    const small = elastic.find((c) => share * c.grow < c.min);
    const own = elastic.find((c) => c.id === id);
    if (!small) return own ? share * own.grow : 0;
    if (small.id === id) return small.min;
    free -= small.min;
    elastic = elastic.filter((c) => c !== small);
  }
}

/** The choices with a column moved before (-1) or behind (1) its next shown neighbour. */
export function withShift(choices: Choice[], id: ColumnId, by: -1 | 1): Choice[] {
  const at = choices.findIndex((c) => c.id === id);
  let to = at + by;
  while (choices[to] && (!choices[to]!.shown || choices[to]!.id === 'select')) to += by;
  return choices[to] ? withPlace(choices, id, choices[to]!.id) : choices;
}

/** The choices with a column at the place of another one. */
export function withPlace(choices: Choice[], id: ColumnId, target: ColumnId): Choice[] {
  const from = choices.findIndex((c) => c.id === id);
  const to = choices.findIndex((c) => c.id === target);
  if (from < 0 || to < 0 || from === to) return choices;
  const moved = [...choices];
  const [choice] = moved.splice(from, 1);
  moved.splice(to, 0, choice!);
  return moved;
}
