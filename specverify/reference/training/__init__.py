"""Trains what drafts for one target: a small draft model, an EAGLE head, Medusa heads. Minutes on a CPU."""
