// How the user wants the table: columns, times, waterfall. Stored in the browser.
import { loadPref, savePref } from '../lib/app.svelte';
import { clampWidth, defaultChoices, readChoices, withPlace, withShift, type Choice, type ColumnId } from './columns';

export type TimeFormat = 'clock' | 'relative' | 'full';
/** Bars from the start of the visible flows, or all from the left edge. */
export type FallScale = 'duration' | 'start';

class TablePrefs {
  choices = $state.raw<Choice[]>(readChoices(loadPref('columns')));
  time = $state<TimeFormat>((['clock', 'relative', 'full'] as const).find((t) => t === loadPref('time')) ?? 'clock');
  fall = $state<FallScale>(loadPref('waterfall') === 'start' ? 'start' : 'duration');
  /** Current time in milliseconds, for relative times. */
  now = $state(Date.now());

  private put(choices: Choice[]): void {
    this.choices = choices;
    savePref('columns', JSON.stringify(choices));
  }

  toggle(id: ColumnId): void {
    this.put(this.choices.map((c) => (c.id === id ? { ...c, shown: !c.shown } : c)));
  }

  /** Sets a width in pixels; null restores the usual one. */
  resize(id: ColumnId, width: number | null): void {
    this.put(this.choices.map((c) => (c.id === id ? { id, shown: c.shown, ...(width === null ? {} : { width: clampWidth(id, width) }) } : c)));
  }

  shift(id: ColumnId, by: -1 | 1): void {
    this.put(withShift(this.choices, id, by));
  }

  place(id: ColumnId, target: ColumnId): void {
    this.put(withPlace(this.choices, id, target));
  }

  setTime(time: TimeFormat): void {
    this.time = time;
    savePref('time', time === 'clock' ? null : time);
  }

  setFall(fall: FallScale): void {
    this.fall = fall;
    savePref('waterfall', fall === 'duration' ? null : fall);
  }

  reset(): void {
    this.choices = defaultChoices();
    savePref('columns', null);
    this.setTime('clock');
    this.setFall('duration');
  }
}

export const table = new TablePrefs();
