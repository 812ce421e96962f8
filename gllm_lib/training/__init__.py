"""The graded objective, its optimiser and schedule, and a loop that resumes exactly."""
