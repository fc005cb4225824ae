// Generates the API's types, src/lib/api.gen.ts, from docs/reference/openapi.json. With --check it only fails if they are stale.
import { readFileSync, writeFileSync } from 'node:fs';
import openapiTS, { astToString } from 'openapi-typescript';
import ts from 'typescript';

/** Schemas that have a type of their own in src/lib/time.ts. */
const BRANDED = { '#/components/schemas/Timestamp': 'UnixMicros', '#/components/schemas/Microseconds': 'Micros' };
const target = new URL('src/lib/api.gen.ts', import.meta.url);
const document = JSON.parse(readFileSync(new URL('../docs/reference/openapi.json', import.meta.url), 'utf8'));

const nodes = await openapiTS({ ...document, paths: {} }, {
  defaultNonNullable: false,
  rootTypes: true,
  rootTypesNoSchemaPrefix: true,
  rootTypesKeepCasing: true,
  transform: (_, { path }) => (BRANDED[path] ? ts.factory.createTypeReferenceNode(BRANDED[path]) : undefined),
});
/** The name of the schema of a JSON body. */
const named = (body) => body?.content?.['application/json']?.schema?.$ref?.split('/').pop() ?? 'unknown';
/** Request and response of every route whose path has no parameters, for the functions of src/lib/api.ts. */
const calls = Object.entries(document.paths).filter(([path]) => !path.includes('{')).flatMap(([path, operations]) =>
  Object.entries(operations).map(([method, { requestBody, responses }]) =>
    `    '${method.toUpperCase()} ${path.replace('/api/v1', '')}': { request: ${named(requestBody)}; response: ${named(responses['200'])} };`));

const text = `// Generated from docs/reference/openapi.json by \`npm run api\`: do not edit.\nimport type { Micros, UnixMicros } from './time';\n\n${astToString(nodes)}
/** The routes without parameters in their paths. */
export interface ApiCalls {
${calls.join('\n')}
}
`;

if (!process.argv.includes('--check')) {
  writeFileSync(target, text);
} else if (readFileSync(target, 'utf8') !== text) {
  console.error('src/lib/api.gen.ts is not generated from docs/reference/openapi.json: run `npm run api` in ui/');
  process.exit(1);
}
