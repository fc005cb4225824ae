// The tables of the reference, which the search of the settings needs first: a whole page of the documentation.
import { errorMessage } from '../lib/api';
import { loadTables, type ReferenceTable } from './reference';

class Reference {
  tables = $state.raw<ReferenceTable[]>([]);
  failure = $state('');
  isLoading = $state(false);
  private loading: Promise<void> | null = null;

  /** Loads them once; after a failure, again. */
  load(): Promise<void> {
    return (this.loading ??= this.fetch());
  }

  private async fetch(): Promise<void> {
    this.isLoading = true;
    try {
      this.tables = await loadTables();
      this.failure = '';
    } catch (error) {
      this.failure = errorMessage(error);
      this.loading = null;
    }
    this.isLoading = false;
  }
}

export const reference = new Reference();
