// Package configs is what an operator tells idmux: the file, the environment
// and the flags, put over the defaults, in that order. It composes the
// configuration of each package and knows keys, units and positions; what a
// setting does is the business of the package that has it.
//
// One table, in keys.go, binds each key to the field that it sets. Reading,
// writing and the search for a misspelt key all go by it.
package configs
