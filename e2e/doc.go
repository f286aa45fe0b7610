// Package e2e drives real servers through idmux with real client libraries. It is a module of its own, so that what only
// these tests need stays out of the product's go.mod. Its tests install the npm packages that they use, on first use, from
// e2e/js/package-lock.json; they need node 20 or newer and npm.
package e2e
