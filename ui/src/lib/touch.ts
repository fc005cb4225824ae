// Whether the main pointer of this device is a finger: then targets are larger.
export const isTouch = globalThis.matchMedia?.('(pointer: coarse)').matches ?? false;
