// Drives the node at argv[2] with ethers: over HTTP, where it makes batches of what is asked at once, or over WebSocket.
import assert from 'node:assert/strict';
import { JsonRpcProvider, Wallet, WebSocketProvider, formatEther, keccak256, parseEther } from 'ethers';
import { accounts, chainId, ether, fortyTwo, key, mined, say, words } from './chain.mjs';

const url = process.argv[2];
const options = { cacheTimeout: -1 };
const connect = () => (url.startsWith('ws')
  ? new WebSocketProvider(url, undefined, options)
  : new JsonRpcProvider(url, undefined, options));
const a = connect();
const b = connect();

const network = await a.getNetwork();
assert.equal(network.chainId, BigInt(chainId));
say('network', network.toJSON());

const genesis = await a.getBlock(0);
assert.equal(genesis.number, 0);
say('genesis', genesis.toJSON());
say('block number', await a.getBlockNumber());

const balances = await Promise.all(accounts.map((account) => a.getBalance(account)));
for (const balance of balances) assert.equal(balance, 10000n * ether);
say('balances', balances.map(formatEther));

// Two clients with the same ids at once.
const many = (provider, name) => Promise.all(words(name).map((word) => provider.send('web3_sha3', [word])));
const [ofA, ofB] = await Promise.all([many(a, 'a'), many(b, 'b')]);
assert.deepEqual(ofA, words('a').map((word) => keccak256(word)));
assert.deepEqual(ofB, words('b').map((word) => keccak256(word)));
say('many', [ofA, ofB]);

const wallet = new Wallet(key, a);
const payment = await wallet.sendTransaction({ to: accounts[1], value: parseEther('1.5') });
const paid = await mined(() => a.getTransactionReceipt(payment.hash));
assert.equal(paid.status, 1);
assert.equal(await b.getBalance(accounts[1]), 10000n * ether + parseEther('1.5'));
say('payment', [payment.hash, paid.gasUsed, paid.gasPrice, paid.index]);

const creation = await wallet.sendTransaction({ data: fortyTwo });
const { contractAddress } = await mined(() => a.getTransactionReceipt(creation.hash));
const answer = await b.call({ to: contractAddress });
assert.equal(BigInt(answer), 42n);
say('contract', [creation.hash, contractAddress, answer, await b.getCode(contractAddress)]);
say('nonce', await b.getTransactionCount(accounts[0]));
say('logs', await b.getLogs({ fromBlock: 0, toBlock: 'latest' }));

await assert.rejects(a.send('eth_nope', []), (error) => {
  say('unknown method', error.error);
  return [-32601, -32602].includes(error.error.code); // over HTTP and over WebSocket
});
await assert.rejects(a.call({ from: accounts[0], to: accounts[1], value: 10n ** 30n }), (error) => {
  say('failing call', [error.code, error.info?.error ?? error.error]);
  return true;
});

await a.destroy();
await b.destroy();
