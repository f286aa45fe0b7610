// Talks to an MCP server, which the official client starts by a command, and prints what came of it:
// node mcp.mjs NAME COMMAND ARGUMENTS... NAME tells what is this client's own in what the server asks it.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import {
  CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema, LoggingMessageNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';

const [name, command, ...args] = process.argv.slice(2);
const client = new Client({ name, version: '1.0.0' }, { capabilities: { sampling: {}, roots: { listChanged: true }, elicitation: {} } });
const asked = [];
client.setRequestHandler(CreateMessageRequestSchema, (request) => {
  asked.push(`sampling of ${request.params.messages[0].content.text}`);
  return { model: 'none', role: 'assistant', content: { type: 'text', text: `sampled by ${name}` } };
});
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [{ uri: `file:///${name}`, name }] }));
client.setRequestHandler(ElicitRequestSchema, () => {
  asked.push('elicitation');
  return { action: 'decline' };
});
let logged = 0;
client.setNotificationHandler(LoggingMessageNotificationSchema, () => { logged++; });

const errors = [];
const transport = new StdioClientTransport({ command, args, stderr: 'inherit' });
client.onerror = (err) => errors.push(String(err));
await client.connect(transport);
const text = async (tool, parameters, options) => (await client.callTool({ name: tool, arguments: parameters }, undefined, options)).content.map((c) => c.text);

const result = {
  server: client.getServerVersion(),
  capabilities: Object.keys(client.getServerCapabilities()).sort(),
  tools: (await client.listTools()).tools.map((t) => t.name).sort(),
  prompts: (await client.listPrompts()).prompts.map((p) => p.name).sort(),
  resources: (await client.listResources()).resources.length,
};
const progress = [];
result.together = await Promise.all([
  text('echo', { message: `I am ${name}; 中文 \u2028` }),
  text('get-sum', { a: 40, b: 2 }),
  text('trigger-long-running-operation', { duration: 0.4, steps: 4 }, { onprogress: (p) => progress.push(p.progress) }),
  text('trigger-sampling-request', { prompt: name, maxTokens: 5 }),
  text('trigger-elicitation-request', {}),
  text('get-roots-list', {}),
]);
result.progress = progress.slice(0, 3); // the server sends the last beside the result, in any order
result.asked = asked.sort();
result.unknown = await client.callTool({ name: 'no-such-tool', arguments: {} }).catch((err) => err.code);
result.method = await client.request({ method: 'no/such' }, { parse: (x) => x }).catch((err) => err.code);
await client.close();
result.errors = errors.filter((text) => !text.includes('"progress":4'));
console.log(JSON.stringify(result));
