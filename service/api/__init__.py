"""Routes, request and answer types, codecs and problem documents: everything that knows HTTP."""
