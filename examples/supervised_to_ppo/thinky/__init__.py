"""Student, teacher, world and training loop of the supervised-to-PPO example."""
