"""Why an all_reduce failed: results side by side, processes that ended or hang, what the ranks printed."""
