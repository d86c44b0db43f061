"""Items ranked by what people do with them: views, click-throughs and votes."""
