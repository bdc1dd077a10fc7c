"""One application a framework, all with the same routes, each in a module of its own."""
