"""The checker: what a generator's packets went through on their way, told from the trailers that they carry."""
