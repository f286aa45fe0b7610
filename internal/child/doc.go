// Package child starts processes and sees to it that they end: none is left behind as a zombie, or running when its owner
// has gone, whichever way that went. What goes over a process's standard input and output is its owner's business; its
// standard error is taken line by line.
//
// A process leads a process group of its own, and all signals go to the group, so that what it has started ends with it.
// When a process has ended by itself, the rest of its group is killed. A process that is started here ends, too, when idmux
// is killed without a chance to say so: a [Guard] kills its group then, and on Linux the kernel kills the process itself
// (parent-death signal), also where the guard was killed as well. Processes that have left their group (setsid) are found by
// the guard, on Linux, by a variable in their environment, IDMUX_GUARD. Out of reach are programs with other privileges than
// idmux's (set-user-id), those that have left the group and cleared their environment, and, where the guard was killed
// together with idmux, all but the direct children.
package child
