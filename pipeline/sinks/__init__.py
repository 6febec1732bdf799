"""Where rows go, exactly once for each batch."""
