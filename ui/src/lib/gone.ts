// Whether a component is still there when an answer comes.
import { onDestroy } from 'svelte';

/** Called while a component is created; what it returns tells whether the component was removed since. */
export function goneCheck(): () => boolean {
  let isGone = false;
  onDestroy(() => (isGone = true));
  return () => isGone;
}
