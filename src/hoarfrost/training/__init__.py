"""The objective, the loop and the learner."""
