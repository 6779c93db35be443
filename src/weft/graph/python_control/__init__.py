"""Python's own branches and loops over values that are known when a graph runs.

A capture that meets the truth of a symbol in a function of the user's begins again with
another code of that function (``source``), made from its source text (``rewrite``), in
which statements over symbols call ``run_time``. Others run as they are written.
"""
