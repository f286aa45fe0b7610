// Drives the node at argv[2] with viem: over HTTP with batches, or over WebSocket.
import assert from 'node:assert/strict';
import { createPublicClient, createWalletClient, formatEther, http, keccak256, parseEther, webSocket } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { foundry } from 'viem/chains';
import { accounts, chainId, ether, fortyTwo, key, mined, say, words } from './chain.mjs';

const url = process.argv[2];
// One socket a client: viem shares sockets by URL, and two clients are wanted here.
const connect = (name) => (url.startsWith('ws')
  ? webSocket(`${url}?${name}`, { retryCount: 0, reconnect: false })
  : http(url, { batch: true, retryCount: 0 }));
const open = (name) => createPublicClient({ chain: foundry, transport: connect(name), cacheTime: 0 });
const a = open('a');
const b = open('b');

assert.equal(await a.getChainId(), chainId);
const genesis = await a.getBlock({ blockNumber: 0n });
assert.equal(genesis.number, 0n);
say('genesis', genesis);
say('block number', await a.getBlockNumber());

const balances = await Promise.all(accounts.map((address) => a.getBalance({ address })));
for (const balance of balances) assert.equal(balance, 10000n * ether);
say('balances', balances.map((balance) => formatEther(balance)));

// Two clients with the same ids at once.
const many = (client, name) => Promise.all(words(name).map((word) => client.request({ method: 'web3_sha3', params: [word] })));
const [ofA, ofB] = await Promise.all([many(a, 'a'), many(b, 'b')]);
assert.deepEqual(ofA, words('a').map((word) => keccak256(word)));
assert.deepEqual(ofB, words('b').map((word) => keccak256(word)));
say('many', [ofA, ofB]);

const account = privateKeyToAccount(key);
const wallet = createWalletClient({ account, chain: foundry, transport: connect('a') });
const payment = await wallet.sendTransaction({ to: accounts[1], value: parseEther('1.5') });
const paid = await mined(() => a.getTransactionReceipt({ hash: payment }));
assert.equal(paid.status, 'success');
assert.equal(await b.getBalance({ address: accounts[1] }), 10000n * ether + parseEther('1.5'));
say('payment', [payment, paid.gasUsed, paid.effectiveGasPrice, paid.transactionIndex]);

const creation = await wallet.sendTransaction({ data: fortyTwo });
const { contractAddress } = await mined(() => a.getTransactionReceipt({ hash: creation }));
const { data: answer } = await b.call({ to: contractAddress });
assert.equal(BigInt(answer), 42n);
say('contract', [creation, contractAddress, answer, await b.getCode({ address: contractAddress })]);
say('nonce', await b.getTransactionCount({ address: accounts[0] }));
say('logs', await b.getLogs({ fromBlock: 0n, toBlock: 'latest' }));

await assert.rejects(a.request({ method: 'eth_nope' }), (error) => {
  say('unknown method', [error.name, error.code, error.details]);
  return [-32601, -32602].includes(error.code); // over HTTP and over WebSocket
});
await assert.rejects(a.call({ account: accounts[0], to: accounts[1], value: 10n ** 30n }), (error) => {
  say('failing call', [error.name, error.details]);
  return true;
});

process.exit(0); // the sockets would keep the process alive
