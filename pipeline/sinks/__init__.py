"""Where rows go. A sink writes each batch whole or not at all, and knows which batches it has."""
