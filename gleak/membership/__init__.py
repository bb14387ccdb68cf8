"""Membership of a round: who took part in it, and how private it was."""
