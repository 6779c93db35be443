"""Records of linear algebra: decompositions and solutions of matrices."""
