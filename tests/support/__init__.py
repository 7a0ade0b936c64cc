"""Material that tests are made of: model files and where they are kept."""
