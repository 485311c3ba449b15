"""The claims of the literature, one function each, a file a family. `softmaxdyn reproduce` runs them."""
