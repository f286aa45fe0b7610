// Several clients of the official SDK on one server behind idmux, at once, over Streamable HTTP:
// node shared.mjs URL CLIENTS KIND. KIND is everything, filesystem or memory.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import assert from 'node:assert/strict';

const [url, count, kind] = process.argv.slice(2);
const errors = [];

async function connect(name) {
  const client = new Client({ name, version: '1.0.0' }, { capabilities: { sampling: {}, elicitation: {} } });
  client.onerror = (err) => errors.push(`${name}: ${err}`);
  client.setRequestHandler(CreateMessageRequestSchema, () => ({ model: 'none', role: 'assistant', content: { type: 'text', text: `sampled by ${name}` } }));
  client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'decline' }));
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client;
}

const text = async (client, name, args, options) =>
  (await client.callTool({ name, arguments: args }, undefined, options)).content.map((c) => c.text).join(' ');

const kinds = {
  async everything(client, name) {
    for (let n = 0; n < 20; n++) {
      assert.equal(await text(client, 'echo', { message: `${name} ${n}` }), `Echo: ${name} ${n}`);
    }
    const progress = [];
    await text(client, 'trigger-long-running-operation', { duration: 0.5, steps: 5 }, { onprogress: (p) => progress.push(p.progress) });
    assert.deepEqual(progress.slice(0, 4), [1, 2, 3, 4]);
  },
  async filesystem(client, name) {
    const dir = (await text(client, 'list_allowed_directories', {})).split('\n').pop().trim();
    for (let n = 0; n < 10; n++) {
      await client.callTool({ name: 'write_file', arguments: { path: `${dir}/${name}.txt`, content: `${name} ${n}` } });
      assert.match(await text(client, 'read_text_file', { path: `${dir}/${name}.txt` }), new RegExp(`^${name} ${n}`));
    }
  },
  async memory(client, name) {
    for (let n = 0; n < 10; n++) {
      assert.match(await text(client, 'open_nodes', { names: [name] }), new RegExp(`of ${name}"`));
    }
  },
};

const clients = await Promise.all(Array.from({ length: Number(count) }, (_, n) => connect(`client-${n}`)));
if (kind === 'memory') { // one at a time: of two that write at once, this server loses one, whoever asks
  for (const [n, client] of clients.entries()) {
    await client.callTool({ name: 'create_entities', arguments: { entities: [{ name: `client-${n}`, entityType: 'client', observations: [`of client-${n}`] }] } });
  }
}
await Promise.all(clients.map((client, n) => kinds[kind](client, `client-${n}`)));
if (kind === 'everything') { // one at a time, since nothing says whose a question is while several wait
  for (const [n, client] of clients.entries()) {
    assert.match(await text(client, 'trigger-sampling-request', { prompt: 'x', maxTokens: 5 }), new RegExp(`sampled by client-${n}\\b`));
  }
}
await Promise.all(clients.map(async (client) => {
  await client.transport.terminateSession();
  await client.close();
}));
console.log(JSON.stringify({ clients: clients.length, errors: errors.filter((e) => !/unknown token|"progress":5|AbortError/.test(e)) }));
