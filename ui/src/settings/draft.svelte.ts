// The settings of the instance and their edits, which stay when another page is opened.
import { errorMessage, get, send } from '../lib/api';
import type { AppliedSettings, SettingChange, SettingsPreview, SettingsView } from '../lib/api.gen';
import { watchUnsaved } from '../lib/unsaved';
import { changesOf, same, type Edits } from './form';

class SettingsDraft {
  view = $state.raw<SettingsView | null>(null);
  edits = $state.raw<Edits>({});
  failure = $state('');
  readonly changes: SettingChange[] = $derived(changesOf(this.view?.settings ?? [], this.edits));

  async load(): Promise<void> {
    try {
      this.view = await get('/settings');
      this.failure = '';
    } catch (error) {
      this.failure = errorMessage(error);
    }
  }

  discard(): void {
    this.edits = {};
  }

  preview(): Promise<SettingsPreview> {
    return send('POST', '/settings/preview', { changes: this.changes });
  }

  async apply(base: string): Promise<AppliedSettings> {
    const sent = this.edits;
    const applied = await send('POST', '/settings', { base, changes: this.changes });
    // What was edited meanwhile was not sent.
    this.edits = Object.fromEntries(Object.entries(this.edits).filter(([key, value]) => !(key in sent) || !same(value, sent[key])));
    await this.load();
    return applied;
  }
}

export const draft = new SettingsDraft();
watchUnsaved(() => draft.changes.length > 0);
