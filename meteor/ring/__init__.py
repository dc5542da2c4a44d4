"""The ring: corrected Chord, its fingers and invariants, and routing by content. No I/O here."""
