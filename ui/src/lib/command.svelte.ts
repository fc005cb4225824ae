// How commands for this instance begin: `interflow`, with the option that names its data directory if that is not the default one.
import { get } from './api';

export const command = $state({ interflow: 'interflow' });

let known: Promise<void> | undefined;

/** Asks the instance, once; until it answers, and if it does not know its machine, commands are for the default data directory. */
export function loadCommand(): Promise<void> {
  known ??= get('/setup').then(
    (setup) => { command.interflow = setup.command; },
    () => undefined,
  );
  return known;
}
