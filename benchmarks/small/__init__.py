"""How tidybert-small is made: its vocabulary, its corpus, and its training beside a teacher."""
