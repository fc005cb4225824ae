'use strict';
// The proxy that the environment names, and the hosts that are reached without it. Stands before the script of each runtime.
const proxy = process.env.HTTPS_PROXY || process.env.HTTP_PROXY;
const skip = (process.env.NO_PROXY || '').split(',').map((s) => s.trim().replace(/^\*?\./, '')).filter(Boolean);
const isSkipped = (host) => skip.some((s) => s === '*' || host === s || host.endsWith('.' + s));
