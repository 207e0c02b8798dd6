"""The faults, one table a group of causes; lab.faults puts them together."""
