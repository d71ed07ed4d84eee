"""One model of classes sorts a folder: known classes, new ones, and what is neither; without torch."""
