// Opens clients of idmux at argv[2] with the library argv[3], numbered from argv[4] on, argv[5] of them. Each subscribes to
// heads, to pending transactions and to logs with its own number as topic. A line on standard input asks for a report: what
// each client has seen since the last "reset", by kind.
import { createInterface } from 'node:readline';
import { WebSocketProvider, toBeHex } from 'ethers';
import { createPublicClient, webSocket } from 'viem';
import { foundry } from 'viem/chains';

const [url, library, first, count] = [process.argv[2], process.argv[3], Number(process.argv[4]), Number(process.argv[5])];
const topic = (n) => toBeHex(n, 32);

async function withEthers(n, seen) {
  const provider = new WebSocketProvider(url);
  await provider.on('block', (number) => seen.heads.push(number));
  await provider.on('pending', (hash) => seen.pending.push(hash));
  await provider.on({ topics: [topic(n)] }, (log) => seen.logs.push(Number(log.topics[0])));
  return (method, params) => provider.send(method, params);
}

async function withViem(n, seen) {
  const client = createPublicClient({ chain: foundry, transport: webSocket(`${url}?${n}`, { retryCount: 0, reconnect: false, keepAlive: false }) });
  const subscribe = (params, onData) => client.transport.subscribe({ params, onData, onError: (e) => { throw e; } });
  await subscribe(['newHeads'], ({ result }) => seen.heads.push(Number(result.number)));
  await subscribe(['newPendingTransactions'], ({ result }) => seen.pending.push(result));
  await subscribe(['logs', { topics: [topic(n)] }], ({ result }) => seen.logs.push(Number(result.topics[0])));
  return (method, params) => client.request({ method, params });
}

const nothing = () => ({ heads: [], pending: [], logs: [] });
const clients = [];
for (let i = 0; i < count; i++) {
  const seen = nothing();
  const ask = await (library === 'ethers' ? withEthers : withViem)(first + i, seen);
  // A call behind the subscribes, so that ethers has sent them all.
  await ask('eth_blockNumber', []);
  clients.push({ seen, ask, filter: await ask('eth_newBlockFilter', []) });
}
console.log('ready');

for await (const line of createInterface({ input: process.stdin })) {
  if (line === 'report') console.log(JSON.stringify(clients.map((c) => c.seen)));
  if (line === 'reset') {
    for (const c of clients) Object.assign(c.seen, nothing());
    console.log('done');
  }
  if (line === 'filters') {
    const all = clients.map((c) => c.ask('eth_getFilterChanges', [c.filter])
      .then((blocks) => blocks.length, (error) => String(error.info?.error?.message ?? error.error?.message ?? error.details ?? error)));
    console.log(JSON.stringify(await Promise.all(all)));
  }
}
process.exit(0); // the sockets would keep the process alive
