"""PPO on CartPole with RLlib: two processes collect, the main one learns."""

from ray.rllib.algorithms.ppo import PPOConfig

ITERATIONS, STEPS = 2, 512

config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=2, rollout_fragment_length=STEPS // 2)
    .training(train_batch_size_per_learner=STEPS, minibatch_size=128, num_epochs=2)
    .debugging(seed=0)
)
algo = config.build_algo()
sampled = 0
for _ in range(ITERATIONS):
    result = algo.train()
    sampled = int(result["num_env_steps_sampled_lifetime"])
algo.stop()
print("sampled", sampled)
