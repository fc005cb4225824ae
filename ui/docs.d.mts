import type { Plugin } from 'vite';

export function docs(folder: string): Plugin;
export function docsPages(folder: string): { name: string; title: string; html: string }[];
export function anchorOf(heading: string): string;
export function docsRedirects(folder: string): { name: string; to: string; html: string }[];
export function highlighted(text: string, language: string): string;
