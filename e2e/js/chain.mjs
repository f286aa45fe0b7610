// What both scripts know of the development node, and how they print: one line of JSON a step, to be compared with the same
// steps without idmux. Hashes of mined blocks stay out, since the node draws a random number for each block.

// The node's first account; its mnemonic, and so this key, is public.
export const key = '0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80';
export const accounts = [
  '0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266',
  '0x70997970C51812dc3A010C7d01b50e0d17dc79C8',
  '0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC',
  '0x90F79bf6EB2c4f870365E785982E1f101E93b906',
];
export const ether = 10n ** 18n;
export const chainId = 31337;

// A constructor whose contract answers every call with the number 42.
export const fortyTwo = '0x600a600c600039600a6000f3602a60005260206000f3';

export function say(step, value) {
  console.log(JSON.stringify({ step, value }, (_, v) => (typeof v === 'bigint' ? `${v}` : v)));
}

// Every call of `many` has another argument and another right answer, so an answer that goes astray shows.
export const words = (client) => Array.from({ length: 50 }, (_, i) => `0x${Buffer.from(`${client} ${i}`).toString('hex')}`);

// The node mines after it has answered. Asking again is what a client without subscriptions does.
export async function mined(receipt) {
  for (let tries = 0; tries < 500; tries++) {
    const found = await receipt().catch(() => null);
    if (found) return found;
    await new Promise((again) => setTimeout(again, 20));
  }
  throw new Error('the transaction was not mined');
}
